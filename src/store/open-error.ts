// What goes wrong when a store is opened.

/** The store cannot be opened. The message is for the operator, who has to act; it holds no credential. */
export class StoreOpenError extends Error {
  override readonly name = 'StoreOpenError';
}
