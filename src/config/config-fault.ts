// Configuration faults: their type, text form, and the error that carries them.

/** One fault or warning. It contains no credential and no value from the environment. */
export interface ConfigFault {
  /** The file name as given to the gateway. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1, in UTF-16 code units, as editors count. */
  readonly column: number;
  readonly message: string;
  /** The faulty line with credentials masked, and a caret below it; empty when there is no line to show. */
  readonly excerpt: string;
}

/** `FILE:LINE:COLUMN: message`, then the line and the caret, indented. No newline at the end. */
export function formatFault(fault: ConfigFault): string {
  const head = `${fault.file}:${fault.line}:${fault.column}: ${fault.message}`;
  return fault.excerpt === '' ? head : `${head}\n${fault.excerpt.replaceAll(/^/gm, '  ')}`;
}

/** Maximum faults in one error: a file of another kind must not flood the terminal. */
export const MAX_FAULTS = 100;

/** The configuration is invalid. `faults` lists the faults in file order. */
export class ConfigError extends Error {
  readonly faults: readonly ConfigFault[];
  /** Number of further faults. */
  readonly more: number;

  /**
   * @param faults at most MAX_FAULTS
   * @param more number of further faults
   */
  constructor(faults: readonly ConfigFault[], more = 0) {
    super([...faults.map(formatFault), ...(more > 0 ? [`and ${more} more`] : [])].join('\n'));
    this.name = 'ConfigError';
    this.faults = faults;
    this.more = more;
  }
}

/** All faults and their count, for a terminal. */
export function faultReport(error: ConfigError): string {
  const count = error.faults.length;
  return [...error.faults.map(formatFault), `${count} ${count === 1 ? 'fault' : 'faults'}`].join('\n');
}
