// What a message says its body is. Whether that is true, and who accepts it, is the reader's affair.

/** The headers of a request or of an answer, names in lower case. */
interface TypedHeaders {
  readonly 'content-type'?: string | readonly string[] | undefined;
}

/**
 * The media type of a body, without its parameters and in lower case (RFC 9110, 8.3.1).
 * @returns e.g. `application/json`; empty when the message names none, or more than one
 */
export function mediaType(headers: TypedHeaders): string {
  const value = headers['content-type'];
  // Most say just this.
  if (value === 'application/json') return value;
  return typeof value === 'string' ? (value.split(';', 1)[0] ?? '').trim().toLowerCase() : '';
}

/** Whether a media type is that of a JSON text, as `application/json` or by its suffix (RFC 6839, 3.1). */
export function isJson(type: string): boolean {
  return type === 'application/json' || type.endsWith('+json');
}
