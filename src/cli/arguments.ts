// Reads the options of a command, strictly, and says what is wrong with them. What they mean is the command's.
import { parseArgs } from 'node:util';
import { nearest } from '../config/schema/nearest.ts';

/** Wrong usage: the command exits with 2. The message does not quote values, which may be keys. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** `text` takes a value, `flag` takes none. */
export type OptionKind = 'text' | 'flag';

/** The options and operands that were given, all of them known to the command. */
export class Arguments<Name extends string> {
  readonly #options: ReadonlyMap<string, string | true>;
  /** What stands beside the options, in order. */
  readonly operands: readonly string[];

  constructor(options: ReadonlyMap<string, string | true>, operands: readonly string[]) {
    this.#options = options;
    this.operands = operands;
  }

  text(name: Name): string | undefined {
    const value = this.#options.get(name);
    return value === true ? undefined : value;
  }

  flag(name: Name): boolean {
    return this.#options.has(name);
  }
}

/**
 * @param argv what follows the name of the command
 * @param kinds the options that the command knows, without dashes
 * @param operands names of what must stand beside the options, for messages: `['PREFIX']`
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
        { type: kind === 'text' ? ('string' as const) : ('boolean' as const) },
      ]),
    ),
    // Strict mode says less: it has no nearest name, and it quotes values.
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const options = new Map<string, string | true>();
  const beside: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') beside.push(token.value);
    if (token.kind !== 'option') continue;
    const kind = known.get(token.name);
    if (kind === undefined) throw unknownOption(token.rawName, known.keys());
    if (options.has(token.name)) throw new UsageError(`${token.rawName} is given twice`);
    options.set(token.name, valueIn(kind, token));
  }
  if (beside.length < operands.length) throw new UsageError(`${operands[beside.length]} is missing`);
  if (beside.length > operands.length) {
    const expected = operands.length === 0 ? 'no operand is' : `only ${operands.join(' ')} is`;
    throw new UsageError(`too many operands: ${expected} expected here`);
  }
  return new Arguments<Name>(options, beside);
}

/**
 * @param what the name of the thing, for the message: `tier`
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

/** ` (did you mean X?)`, or nothing when no candidate is near. */
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
  if (inlineValue !== true && value.startsWith('-')) {
    throw new UsageError(`${rawName} needs a value; one that begins with a dash is written ${rawName}=VALUE`);
  }
  return value;
}

function unknownOption(rawName: string, known: Iterable<string>): UsageError {
  const dashed = Array.from(known, (name) => `--${name}`);
  // The name of an option that does not exist is quoted only when it cannot be a key behind two dashes.
  const shown = rawName.length <= 24 ? ` ${rawName}` : '';
  return new UsageError(`unknown option${shown}${didYouMean(rawName, dashed)}`);
}
