// What a client hands to its user, and what it throws, as plain JSON.

/** All items of a stream. */
export async function itemsOf<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** What a stream gave until it ended, or until it threw. */
export async function collect(
  stream: AsyncIterable<unknown>,
): Promise<{ items: unknown[]; thrown?: unknown }> {
  const items: unknown[] = [];
  try {
    for await (const item of stream) items.push(item);
    return { items };
  } catch (error) {
    return { items, thrown: plainError(error) };
  }
}

/** A value as JSON has it; what JSON leaves out or loses is named. */
export function plain(value: unknown, depth = 0): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (value === undefined || typeof value === 'function' || typeof value === 'symbol') return undefined;
  if (typeof value === 'bigint') return String(value);
  if (depth > 20) return '<deeper>';
  if (value instanceof Error) return plainError(value, depth + 1);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof ArrayBuffer) return plain(new Uint8Array(value));
  if (ArrayBuffer.isView(value) && !(value instanceof Float32Array))
    return { base64: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64') };
  if (value instanceof Float32Array || value instanceof Set) return [...value];
  if (value instanceof Map || value instanceof Headers) return plain(Object.fromEntries(value), depth);
  if (Array.isArray(value)) return value.map((each) => plain(each, depth + 1));
  const fields = Object.entries(value).map(([name, each]) => [name, plain(each, depth + 1)] as const);
  // The SDKs for Node keep the request's id in a property that does not enumerate.
  const id = Reflect.get(value, '_request_id');
  return { ...Object.fromEntries(fields), ...(id === undefined ? {} : { _request_id: id }) };
}

/** What a program that catches an error can read of it. */
export function plainError(error: unknown, depth = 0): { class: string; [field: string]: unknown } {
  if (!(error instanceof Error)) return { class: typeof error, message: plain(error, depth) };
  const fields = Object.entries(error)
    // Errors of undici hold the ports of their socket, and what it has sent so far.
    .filter(([name]) => name !== 'socket')
    .map(([name, each]) => [name, plain(each, depth + 1)] as const);
  const cause = error.cause === undefined ? {} : { cause: plain(error.cause, depth + 1) };
  const own = { class: error.constructor.name, name: error.name, message: error.message };
  return { ...Object.fromEntries(fields), ...cause, ...own };
}
