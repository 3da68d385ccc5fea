// How often the outbox writes, sends and looks for files of others, and how much it holds.

/** In milliseconds, rows and bytes. */
export const OUTBOX_LIMITS = {
  /** Delay from a record to the file. */
  writeMs: 250,
  /** Delay from the file to the store. */
  sendMs: 1000,
  /** Maximum pause after a failed write to the store. */
  pauseMs: 5000,
  /** Interval of scans of the directory. */
  scanMs: 5000,
  /** Number of rows that are written without delay. */
  writeRows: 500,
  /** Maximum number of rows in memory. */
  memoryRows: 20_000,
  /** Maximum bytes in the directory. */
  diskBytes: 256 * 1024 * 1024,
  /** Deadline of a report. */
  readMs: 5000,
};

export type UsageOutboxLimits = Readonly<typeof OUTBOX_LIMITS>;
