// What is wrong with a configuration and where: the shape of a fault, its text, and the error that carries all of them.

/** One thing wrong, or worth a warning. No text in it holds a credential or a value from the environment. */
export interface ConfigFault {
  /** The file as it was named to the gateway. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1, in UTF-16 code units, as editors count. */
  readonly column: number;
  readonly message: string;
  /** The line at fault with credentials masked, and under it a caret; empty where there is no line to show. */
  readonly excerpt: string;
}

/** `FILE:LINE:COLUMN: message`, then the line and the caret, indented. No newline at the end. */
export function formatFault(fault: ConfigFault): string {
  const head = `${fault.file}:${fault.line}:${fault.column}: ${fault.message}`;
  return fault.excerpt === '' ? head : `${head}\n${fault.excerpt.replaceAll(/^/gm, '  ')}`;
}

/** The most faults that one error carries: a file that is no configuration at all must not fill the terminal. */
export const MAX_FAULTS = 100;

/** The configuration cannot be used. `faults` has everything that is wrong with it, in the order of the file. */
export class ConfigError extends Error {
  readonly faults: readonly ConfigFault[];
  /** How many there are beyond these. */
  readonly more: number;

  /**
   * @param faults at most MAX_FAULTS
   * @param more how many there are beyond these
   */
  constructor(faults: readonly ConfigFault[], more = 0) {
    super([...faults.map(formatFault), ...(more > 0 ? [`and ${more} more`] : [])].join('\n'));
    this.name = 'ConfigError';
    this.faults = faults;
    this.more = more;
  }
}
