// Options of the benches' command lines.

/**
 * @param name of the option, without its dashes
 * @param text as given
 * @throws Error that names the option
 */
export function wholeNumber(name: string, text: unknown, max: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new Error(`--${name} is a whole number from 1 to ${max}`);
}

/** The exit code of a bench whose figures are there, and miss their target. */
export const MISSED = 2;
