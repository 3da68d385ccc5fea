// What an upstream's error answer says, in whatever shape it comes: its text for the client, its code, and the status it names.

export interface ErrorAnswer {
  /** As bytes for the client: the upstream's own where they have OpenAI's shape, else a new object with its message. */
  readonly body: Buffer | undefined;
  readonly message: string;
  /** `code` and `type`, in lower case. */
  readonly words: readonly string[];
  /** A status from 400 to 599 that it names. */
  readonly status: number | undefined;
}

/**
 * Reads OpenAI's error object, and what others send: bare text in `error`, a flat object, an array of one, an object within
 * the object, and any of these as an event of a stream.
 * @param status of the answer, for the type of an error object that is made
 */
export function readErrorAnswer(status: number, bytes: Buffer): ErrorAnswer {
  const text = bytes.toString();
  const whole = parse(text);
  const json = whole === undefined ? eventData(text) : text;
  const parsed = whole ?? parse(json);
  const outer = Array.isArray(parsed) ? parsed[0] : parsed;
  const error = memberOf(outer, 'error');
  const levels = [memberOf(error, 'error'), error, outer];
  const message = levels
    .flatMap((level) => [level, memberOf(level, 'message'), memberOf(level, 'detail')])
    .find((found): found is string => typeof found === 'string' && found !== '');
  const isShaped = typeof memberOf(memberOf(parsed, 'error'), 'message') === 'string';
  const own = whole === undefined ? Buffer.from(json) : bytes;
  return {
    body: isShaped ? own : message === undefined ? undefined : errorBody(status, message),
    message: message ?? '',
    words: levels
      .flatMap((level) => [memberOf(level, 'code'), memberOf(level, 'type')])
      .filter((word) => typeof word === 'string')
      .map((word) => word.toLowerCase()),
    status: levels.map(statusIn).find((found) => found !== undefined),
  };
}

/** The data of the first event that has any (WHATWG HTML, 9.2.6). */
function eventData(text: string): string {
  const [event = ''] = text.split(/\r\n\r\n|\n\n|\r\r/).filter((each) => /^data:/m.test(each));
  const lines = event.split(/\r\n|\n|\r/).filter((line) => line.startsWith('data:'));
  return lines
    .map((line) => line.slice('data:'.length))
    .join('\n')
    .trim();
}

function errorBody(status: number, message: string): Buffer {
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  return Buffer.from(JSON.stringify({ error: { message, type, param: null, code: null } }));
}

function statusIn(level: unknown): number | undefined {
  for (const name of ['status', 'code', 'status_code']) {
    const value = memberOf(level, name);
    const status = typeof value === 'string' && /^\d{3}$/.test(value) ? Number(value) : value;
    if (typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599)
      return status;
  }
  return undefined;
}

/** A member of its own of any value; undefined where there is none. */
export function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

/** What the text says as JSON; undefined where it is none. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
