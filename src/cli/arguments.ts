// Strict parsing of a command's options, with precise usage errors.
import { parseArgs } from 'node:util';
import { readDuration } from '../config/schema/units.ts';
import { nearest } from '../config/source/nearest.ts';

/** A usage error: the command exits with 2. Messages quote no values, which may be keys. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** `text` takes a value, `list` takes one each time it is given, `flag` takes none. */
export type OptionKind = 'text' | 'list' | 'flag';

/** Parsed options and operands, all known to the command. */
export class Arguments<Name extends string> {
  readonly #options: ReadonlyMap<string, string | true | readonly string[]>;
  /** The positional arguments, in order. */
  readonly operands: readonly string[];

  constructor(options: ReadonlyMap<string, string | true | readonly string[]>, operands: readonly string[]) {
    this.#options = options;
    this.operands = operands;
  }

  text(name: Name): string | undefined {
    const value = this.#options.get(name);
    return typeof value === 'string' ? value : undefined;
  }

  list(name: Name): readonly string[] {
    const value = this.#options.get(name);
    return Array.isArray(value) ? value : [];
  }

  flag(name: Name): boolean {
    return this.#options.has(name);
  }
}

/**
 * @param argv arguments after the command name
 * @param kinds the known options, without dashes
 * @param operands names of the required positional arguments, for messages: `['PREFIX']`
 * @throws UsageError
 */
export function readArguments<Name extends string>(
  argv: readonly string[],
  kinds: Readonly<Record<Name, OptionKind>>,
  operands: readonly string[] = [],
): Arguments<Name> {
  const known = new Map<string, OptionKind>(Object.entries<OptionKind>(kinds));
  const { tokens } = parseArgs({
    args: [...argv],
    options: Object.fromEntries(
      [...known].map(([name, kind]) => [
        name,
        { type: kind === 'flag' ? ('boolean' as const) : ('string' as const), multiple: kind === 'list' },
      ]),
    ),
    // Strict mode suggests no nearest name, and its messages quote values.
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const options = new Map<string, string | true | readonly string[]>();
  const positionals: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') positionals.push(token.value);
    if (token.kind !== 'option') continue;
    const kind = known.get(token.name);
    if (kind === undefined) throw unknownOption(token.rawName, known.keys());
    const before = options.get(token.name);
    if (before !== undefined && kind !== 'list') throw new UsageError(`${token.rawName} is given twice`);
    const value = valueIn(kind, token);
    const values = Array.isArray(before) ? before : [];
    options.set(token.name, kind === 'list' && value !== true ? [...values, value] : value);
  }
  if (positionals.length < operands.length)
    throw new UsageError(`${operands[positionals.length]} is missing`);
  if (positionals.length > operands.length) {
    const expected = operands.length === 0 ? 'no operand is' : `only ${operands.join(' ')} is`;
    throw new UsageError(`too many operands: ${expected} expected here`);
  }
  return new Arguments<Name>(options, positionals);
}

/**
 * @param what name of the value, for the message: `tier`
 * @returns `given` as one of `choices`
 * @throws UsageError
 */
export function oneOf<Choice extends string>(
  given: string,
  choices: readonly Choice[],
  what: string,
): Choice {
  const found = choices.find((choice) => choice === given);
  if (found !== undefined) return found;
  throw new UsageError(`unknown ${what}: it is one of ${choices.join(', ')}${didYouMean(given, choices)}`);
}

/**
 * A time after or before now: a duration, such as `90d`, or a day, such as `2030-01-31`, which begins at midnight UTC.
 * @param direction 1 for a duration after now, -1 before
 * @returns RFC 3339, UTC
 * @throws UsageError
 */
export function readTime(text: string, option: string, now: number, direction: 1 | -1): string {
  if (/^\d{4}-\d\d-\d\d$/.test(text)) {
    const at = new Date(`${text}T00:00:00Z`);
    // `Date` moves a day beyond the month's end into the next month.
    if (!Number.isNaN(at.getTime()) && at.toISOString().startsWith(text)) return at.toISOString();
  }
  const duration = readDuration(text);
  if (duration.ok && duration.value > 0) return new Date(now + direction * duration.value).toISOString();
  throw new UsageError(`${option} is a duration, such as 36h or 90d, or a day, such as 2030-01-31`);
}

/** ` (did you mean X?)`, or empty when no candidate is near. */
export function didYouMean(given: string, candidates: Iterable<string>): string {
  const near = nearest(given, candidates);
  return near === undefined ? '' : ` (did you mean ${near}?)`;
}

function valueIn(
  kind: OptionKind,
  token: {
    readonly rawName: string;
    readonly value?: string | undefined;
    readonly inlineValue?: boolean | undefined;
  },
): string | true {
  const { rawName, value, inlineValue } = token;
  if (kind === 'flag') {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`);
    return true;
  }
  if (value === undefined || value === '') throw new UsageError(`${rawName} needs a value`);
  // A dash alone is the standard input.
  if (inlineValue !== true && value.startsWith('-') && value !== '-') {
    throw new UsageError(
      `${rawName} needs a value; write a value that begins with a dash as ${rawName}=VALUE`,
    );
  }
  return value;
}

function unknownOption(rawName: string, known: Iterable<string>): UsageError {
  const dashed = Array.from(known, (name) => `--${name}`);
  // A longer unknown option could be a key after two dashes, so it is not quoted.
  const shown = rawName.length <= 24 ? ` ${rawName}` : '';
  return new UsageError(`unknown option${shown}${didYouMean(rawName, dashed)}`);
}
