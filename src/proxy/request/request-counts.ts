// Numbers of a request that bound its usage, read as the most lenient upstream would: some read "10", 10.0 and 1e1 as 10, and the
// gateway must not count less. Values that no upstream reads as a number are rejected.
import { type GatewayError, parameterError } from '../../errors.ts';
import { decodeString, type Span } from '../../wire/json/json.ts';

/** Longest number in bytes. */
const MAX_NUMBER = 256;
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;
const QUOTE = 0x22;
const MINUS = 0x2d;
const LETTER_N = 0x6e;

/**
 * The number at a span of a JSON body; null without a span, for null, and for less than one, which all mean no bound.
 * @throws GatewayError invalid_type or invalid_value
 */
export function countAt(body: Buffer, span: Span | null | undefined, param: string): number | null {
  if (span === undefined || span === null) return null;
  const { start, end } = span;
  const first = body[start] ?? 0;
  if (first === LETTER_N) return null;
  if (first !== QUOTE && first !== MINUS && (first < 0x30 || first > 0x39)) throw notANumber(param);
  if (end - start > MAX_NUMBER) throw parameterError('invalid_value', param, 'is too long for a number');
  return countOf(first === QUOTE ? decodeString(body, span) : body.toString('latin1', start, end), param);
}

/** As `countAt`, for text. */
export function countOf(text: string, param: string): number | null {
  const trimmed = text.trim();
  if (!NUMBER.test(trimmed)) throw notANumber(param);
  const number = Number(trimmed);
  return number >= 1 ? Math.min(Math.ceil(number), Number.MAX_SAFE_INTEGER) : null;
}

/**
 * `n` of a body: the number of answers, by default one.
 * @throws GatewayError as `countAt`, and invalid_value for less than one
 */
export function choicesAt(body: Buffer, span: Span | null): number {
  if (span === null || body[span.start] === LETTER_N) return 1;
  return atLeastOne(countAt(body, span, 'n'));
}

/** As `choicesAt`, for a form field, which may be empty. */
export function choicesOf(text: string): number {
  return text === '' ? 1 : atLeastOne(countOf(text, 'n'));
}

function atLeastOne(count: number | null): number {
  if (count !== null) return count;
  throw parameterError('invalid_value', 'n', 'must be at least 1');
}

function notANumber(param: string): GatewayError {
  return parameterError('invalid_type', param, 'must be a number');
}
