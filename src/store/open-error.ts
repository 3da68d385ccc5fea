// The error for a store that cannot be opened.

/** The store cannot be opened. The message is for the operator and contains no credential. */
export class StoreOpenError extends Error {
  override readonly name = 'StoreOpenError';
}
