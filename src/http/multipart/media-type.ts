// The declared media type of a message body. Verifying it is the reader's task.

/** Headers of a request or response, names in lower case. */
interface TypedHeaders {
  readonly 'content-type'?: string | readonly string[] | undefined;
}

/**
 * The media type, without parameters and in lower case (RFC 9110, 8.3.1).
 * @returns e.g. `application/json`; empty if there is none or more than one
 */
export function mediaType(headers: TypedHeaders): string {
  const value = headers['content-type'];
  // The common case.
  if (value === 'application/json') return value;
  return typeof value === 'string' ? (value.split(';', 1)[0] ?? '').trim().toLowerCase() : '';
}

/** Whether a media type is JSON: `application/json`, or a `+json` suffix (RFC 6839, 3.1). */
export function isJson(type: string): boolean {
  return type === 'application/json' || type.endsWith('+json');
}
