// SQLite's result codes, and what the operator can do about an error.

/** SQLite's result code → advice for the operator. */
const ADVICE: Readonly<Record<number, string>> = {
  5: 'another process holds its lock; stop that process, or try again',
  8: 'grant this process write access to the file and its folder',
  10: 'the disk or the file system failed; check the system log',
  11: 'the file is damaged or truncated; restore it from a backup',
  13: 'the disk is full; free some space',
  14: 'grant this process write access to the folder of the file',
  26: 'correct the path in `store`, or restore the file from a backup',
};

/** SQLite's primary result code; 0 for other errors. */
export function primaryCode(error: unknown): number {
  if (!(error instanceof Error) || !('errcode' in error) || typeof error.errcode !== 'number') return 0;
  return error.errcode & 0xff;
}

/** An error with advice, the original as its cause; an error without advice as it is. */
export function withAdvice(error: unknown): unknown {
  const advice = ADVICE[primaryCode(error)];
  if (advice === undefined || !(error instanceof Error)) return error;
  return new Error(`${error.message}; ${advice}`, { cause: error });
}
