// Definitions of commands. Parsing, help, completion and docs/cli.md are made from them; commander parses and formats the help.
import { styleText } from 'node:util';
import { Argument, Command, type CommanderError, Option } from 'commander';
import { didYouMean, oneOf, UsageError } from './arguments.ts';
import type { CommandIo } from './terminal.ts';

/** An option: how it is written, and the `Value` that a command gets. */
export interface OptionSpec<Value> {
  /** For the help, without a full stop. */
  readonly about: string;
  /** The word for its value in the help, such as `TIER`; undefined for a flag. */
  readonly value?: string;
  /** All values that it can have. */
  readonly choices?: readonly string[];
  readonly isRequired?: boolean;
  /** Names of options that cannot be given with it. */
  readonly excludes?: readonly string[];
  /** Its value where it is not given. */
  readonly initial?: Value;
  /** @param before its value so far @throws UsageError, which does not quote the text: it may be a key */
  read(text: string, before: Value): NonNullable<Value>;
}

/** By their names in the code: `unusedSince` is `--unused-since`. */
export type Options = Readonly<Record<string, OptionSpec<unknown>>>;

/** The values of options. */
export type Given<Known extends Options> = {
  readonly [Name in keyof Known]: Known[Name] extends OptionSpec<infer Value> ? Value : never;
};

/** The word that a command takes besides its options. */
export interface Operand {
  readonly name: string;
  readonly about: string;
  readonly isOptional?: boolean;
  /** All words that it can be. */
  readonly choices?: readonly string[];
}

/** What its help says of a command. */
interface CommandText {
  readonly name: string;
  /** One line. */
  readonly about: string;
  /** More for its own help. */
  readonly detail?: string;
  /** Whole commands without the word `tollgate`. */
  readonly examples?: readonly string[];
}

interface CommandSpec<Known extends Options> {
  /** More for its own help. */
  readonly detail?: string;
  readonly operand?: Operand;
  readonly options: Known;
  readonly examples: readonly string[];
  /** @param operand empty where it is not given @returns the exit code; undefined is 0 */
  run(given: Given<Known>, io: CommandIo, operand: string): Promise<number | undefined>;
}

/** What a parsed command does. */
export type Work = (io: CommandIo) => Promise<number | undefined>;

/** A command, or a group of commands. */
export interface Definition {
  readonly name: string;
  /** @param start gets the work of the command that the arguments name */
  build(start: (work: Work) => void): Command;
}

export function flag(about: string, excludes: readonly string[] = []): OptionSpec<boolean> {
  return { about, excludes, initial: false, read: () => true };
}

export function text(
  value: string,
  about: string,
  excludes: readonly string[] = [],
): OptionSpec<string | undefined> {
  return { about, value, excludes, read: (given) => given };
}

/** An option that can be given any number of times. */
export function list(value: string, about: string): OptionSpec<readonly string[]> {
  return { about: `${about}; repeatable`, value, initial: [], read: (given, before) => [...before, given] };
}

/** One of several words. */
export function choice<Word extends string>(
  choices: readonly Word[],
  value: string,
  about: string,
  excludes: readonly string[] = [],
): OptionSpec<Word | undefined> {
  return { about, value, choices, excludes, read: (given) => oneOf(given, choices, value.toLowerCase()) };
}

export function required<Value extends NonNullable<unknown>>(
  spec: OptionSpec<Value | undefined>,
): OptionSpec<Value> {
  const { initial: _none, ...others } = spec;
  return { ...others, isRequired: true, read: (given) => spec.read(given, undefined) };
}

/** Of every command that reads the configuration. */
export const CONFIG: OptionSpec<string> = {
  about: 'the configuration; the default is ./config.yaml',
  value: 'FILE',
  initial: './config.yaml',
  read: (given) => given,
};
export const JSON_OUTPUT = flag('print JSON');
/** Of every command that shows something of the store. */
export const SHOW_OPTIONS = { json: JSON_OUTPUT, config: CONFIG } as const;

/** @param about one line for the help */
export function command<const Known extends Options>(
  name: string,
  about: string,
  spec: CommandSpec<Known>,
): Definition {
  const { operand, options, detail, examples } = spec;
  return {
    name,
    build: (start) => {
      const built = new StrictCommand({ name, about, examples, ...(detail !== undefined && { detail }) });
      for (const [each, option] of Object.entries(options)) built.addSpec(each, option);
      if (operand !== undefined) {
        const argument = new Argument(operand.name, operand.about);
        // For the completion; a wrong word is an error of the command, which does not quote it.
        if (operand.choices !== undefined) argument.argChoices = [...operand.choices];
        built.addArgument(operand.isOptional === true ? argument.argOptional() : argument);
      }
      return built.action(() => {
        const given = built.opts<Given<Known>>();
        start((io) => spec.run(given, io, built.args[0] ?? ''));
      });
    },
  };
}

/** @param own what the name of the group does alone */
export function group(
  name: string,
  about: string,
  commands: readonly Definition[],
  own?: Definition,
): Definition {
  return {
    name,
    build: (start) => {
      const built = own?.build(start) ?? new StrictCommand({ name, about });
      for (const each of commands) built.addCommand(each.build(start));
      return built.hook('preSubcommand', (_, sub) => {
        if (built.options.some((each) => built.getOptionValueSource(each.attributeName()) === 'cli'))
          throw new UsageError(`options are given behind the command: ${name} ${sub.name()} OPTIONS`);
      });
    },
  };
}

/** A command of commander without its leniencies, and with errors that quote no values. */
export class StrictCommand extends Command {
  constructor({ name, about, detail, examples = [] }: CommandText) {
    super(name);
    this.summary(about).description(detail === undefined ? about : `${about}\n\n${detail}`);
    this.helpOption('-h, --help', 'show this help').helpCommand(false);
    // Options of a group are those before the name of a command.
    this.enablePositionalOptions();
    // What commander prints besides the help that is asked for; an error is printed by command-line.ts.
    this.configureOutput({ writeErr: () => undefined });
    this.exitOverride((error) => {
      throw this.#usageError(error);
    });
    this.configureHelp({
      subcommandTerm: (sub) => sub.name(),
      optionDescription: ({ description, argChoices }) =>
        argChoices === undefined ? description : `${description}: ${argChoices.join(', ')}`,
      styleTitle: (title) => styleText('bold', title, { validateStream: false }),
    });
    const lines = examples.map((each) => `  tollgate ${each}`).join('\n');
    if (lines !== '')
      this.addHelpText(
        'after',
        ({ command }) => `\n${command.createHelp().styleTitle('Examples:')}\n${lines}`,
      );
  }

  /** @param name in the code: `unusedSince` */
  addSpec(name: string, spec: OptionSpec<unknown>): void {
    const dashed = `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    const flags = spec.value === undefined ? dashed : `${dashed} <${spec.value}>`;
    const option = new Option(flags, spec.about).conflicts([...(spec.excludes ?? [])]);
    // `--no-name` is an option of its own and not the negation of `--name`.
    option.negate = false;
    if (spec.choices !== undefined) option.choices(spec.choices);
    if (spec.value !== undefined)
      option.argParser((given: string, before: unknown) => {
        if (given === '') throw new UsageError(`${dashed} needs a value`);
        return spec.read(given, before);
      });
    this.addOption(option.makeOptionMandatory(spec.isRequired === true));
    this.setOptionValueWithSource(name, spec.initial, 'default');
    let isGiven = false;
    this.on(`option:${option.name()}`, () => {
      if (isGiven && !Array.isArray(spec.initial)) throw new UsageError(`${dashed} is given twice`);
      isGiven = true;
    });
  }

  /** Rejects `--name --json`, where the value was forgotten. @throws UsageError */
  override parseOptions(argv: string[]) {
    for (const [at, word] of argv.entries()) {
      if (word === '--') break;
      const next = argv[at + 1];
      const takesNext = this.options.some(({ long, required: hasValue }) => hasValue && long === word);
      // A dash alone is the standard input.
      if (takesNext && next?.startsWith('-') === true && next !== '-')
        throw new UsageError(`${word} needs a value; write a value that begins with a dash as ${word}=VALUE`);
    }
    return super.parseOptions(argv);
  }

  /** The error in our words; a request for help stays as it is. */
  #usageError(error: CommanderError): CommanderError | UsageError {
    const [first = '', second = ''] = [...error.message.matchAll(/'([^']*)'/g)].map(([, name = '']) => name);
    const long = (flags: string) => flags.split(' ')[0];
    const names = this.registeredArguments.map((argument) => argument.name());
    switch (error.code) {
      case 'commander.unknownCommand':
        return new UsageError(this.#unknownCommand());
      case 'commander.unknownOption': {
        const [option = ''] = first.split('=');
        if (this.options.some((each) => each.long === option))
          return new UsageError(`${option} takes no value`);
        // A longer unknown option could be a key after two dashes, so it is not quoted, and no control characters are.
        const shown = /^--?[\w-]{1,22}$/.test(option) ? ` ${option}` : '';
        const known = this.options.map((each) => each.long ?? '');
        return new UsageError(`unknown option${shown}${didYouMean(option, [...known, '--help'])}`);
      }
      case 'commander.optionMissingArgument':
        return new UsageError(`${long(first)} needs a value`);
      case 'commander.missingMandatoryOptionValue':
        return new UsageError(`${long(first)} is missing`);
      case 'commander.conflictingOption':
        return new UsageError(`give either ${long(first)} or ${long(second)}`);
      case 'commander.missingArgument':
        return new UsageError(`${first} is missing`);
      case 'commander.excessArguments':
        if (this.commands.length > 0) return new UsageError(this.#unknownCommand());
        return new UsageError(
          `too many operands: ${names.length === 0 ? 'no operand is' : `only ${names.join(' ')} is`} expected here`,
        );
      case 'commander.help':
        return new UsageError('a command is missing');
      default:
        return error;
    }
  }

  #unknownCommand(): string {
    const names = this.commands.map((each) => each.name());
    return `unknown command${didYouMean(this.args[0] ?? '', names)}`;
  }
}
