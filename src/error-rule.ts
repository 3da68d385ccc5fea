// The rule behind an error code, and the kinds of rules.

/** Retry advice for SDKs: `wait` sends `retry-after`, `no` sends `x-should-retry: false`. */
export type RetryAdvice = 'wait' | 'no' | 'default';

export interface ErrorRule {
  /** HTTP status; 499 appears in the access log only. */
  readonly status: number;
  /** `error.type` on the wire, in OpenAI's vocabulary. */
  readonly type: string;
  readonly retry: RetryAdvice;
  /** Default message for the client. */
  readonly message: string;
}

/** @returns a function that makes a rule of this type and retry advice from status and message */
export const kind =
  (type: string, retry: RetryAdvice) =>
  (status: number, message: string): ErrorRule => ({ status, type, retry, message });

/** The request is wrong, and stays wrong. */
export const invalid = kind('invalid_request_error', 'no');
/** The request may succeed later, unchanged. */
export const transient = kind('invalid_request_error', 'default');
/** Not allowed for this client. */
export const forbidden = kind('request_forbidden', 'no');
/** A rate limit. */
export const limited = kind('requests', 'wait');
/** A failure behind the gateway, or in it. */
export const failed = kind('server_error', 'default');
/** A failure that a retry cannot help: the operator has to act, or the work is done already. */
export const unrepeated = kind('server_error', 'no');
/** Temporarily unavailable. */
export const busy = kind('service_unavailable_error', 'wait');
