// Readers for scalars: durations, sizes, whole and decimal numbers, booleans. Each accepts one form and rejects YAML's other
// spellings (`0x10`, `1e3`, `1_000`, `yes`).

/** A parsed value or a fault. A fault never quotes the text, which may come from the environment. */
export type ScalarResult<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly fault: string };

export const accepted = <T>(value: T): ScalarResult<T> => ({ ok: true, value });
export const rejected = (fault: string): { readonly ok: false; readonly fault: string } => ({
  ok: false,
  fault,
});

const DURATION_UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const SIZE_UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};

function readQuantity(
  text: string,
  units: Readonly<Record<string, number>>,
  example: string,
): ScalarResult<number> {
  const match = /^(0|[1-9]\d{0,15})([A-Za-z]+)$/.exec(text);
  const unit = Object.hasOwn(units, match?.[2] ?? '') ? units[match?.[2] ?? ''] : undefined;
  if (match === null || unit === undefined) {
    return rejected(
      `must be a whole number with a unit (${Object.keys(units).join(', ')}), such as ${example}`,
    );
  }
  return accepted(Number(match[1]) * unit);
}

/** @returns milliseconds of `500ms`, `3s`, `10m`, `1h`, `30d` */
export function readDuration(text: string): ScalarResult<number> {
  return readQuantity(text, DURATION_UNITS, '30s');
}

/** @returns midnight UTC of `2030-01-31`, in milliseconds since 1970; undefined for another text, and for a day that does not exist */
export function dayStart(text: string): number | undefined {
  const at = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN;
  // `Date.parse` moves a day beyond the end of the month into the next month.
  return !Number.isNaN(at) && new Date(at).toISOString().startsWith(text) ? at : undefined;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/;

/** @returns milliseconds since 1970 of a time by RFC 3339, or of the beginning of a day, UTC; undefined for another text */
export function readMoment(text: string): number | undefined {
  if (!TIME.test(text)) return dayStart(text);
  const at = Date.parse(text);
  return dayStart(text.slice(0, 10)) === undefined || Number.isNaN(at) ? undefined : at;
}

/** @returns bytes of `100B`, `64KiB`, `32MiB`, `1GB`; units without `i` are decimal */
export function readSize(text: string): ScalarResult<number> {
  return readQuantity(text, SIZE_UNITS, '32MiB');
}

/** Decimal digits only: no sign but `-`, no leading zero, no other base, no exponent, no separator. */
export function readInteger(text: string): ScalarResult<number> {
  const value = Number(text);
  const isWhole = /^-?(0|[1-9]\d*)$/.test(text);
  if (isWhole && value > Number.MAX_SAFE_INTEGER)
    return rejected(`must be at most ${Number.MAX_SAFE_INTEGER}`);
  return isWhole && Number.isSafeInteger(value)
    ? accepted(value)
    : rejected('must be a whole number in decimal digits, such as 20');
}

/** Like `readInteger`, with an optional fraction. */
export function readDecimal(text: string): ScalarResult<number> {
  const value = Number(text);
  return /^-?(0|[1-9]\d*)(\.\d+)?$/.test(text) && Number.isFinite(value)
    ? accepted(value)
    : rejected('must be a number in decimal digits, such as 0.2');
}

/** @returns an amount of money in millionths: `2.5` is 2500000. More decimals are a fault, so that nothing is rounded. */
export function readAmount(text: string): ScalarResult<number> {
  const [, sign, whole = '', decimals = ''] = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?$/.exec(text) ?? [];
  if (whole === '') return rejected('must be an amount in decimal digits, such as 2.5');
  if (sign === '-') return rejected('must be at least 0');
  if (decimals.length > 6) return rejected('has more than six decimals');
  // A larger amount loses digits here, and is above every bound.
  return accepted(Number(whole + decimals.padEnd(6, '0')));
}

export function readBoolean(text: string): ScalarResult<boolean> {
  return text === 'true' || text === 'false' ? accepted(text === 'true') : rejected('must be true or false');
}

/** Uses the largest unit that gives a whole number: 600000 is `10m`. */
function formatQuantity(value: number, units: readonly (readonly [string, number])[]): string {
  const fitting = units.filter(([, unit]) => value % unit === 0).sort((a, b) => b[1] - a[1])[0];
  const [name, unit] = value === 0 || fitting === undefined ? (units[0] ?? ['', 1]) : fitting;
  return `${value / unit}${name}`;
}

/** @param ms a whole number of milliseconds */
export function formatDuration(ms: number): string {
  const units = Object.entries(DURATION_UNITS).filter(([name]) => ms !== 0 || name === 's');
  return formatQuantity(ms, units);
}

/** @param bytes a whole number of bytes */
export function formatSize(bytes: number): string {
  return formatQuantity(bytes, Object.entries(SIZE_UNITS));
}
