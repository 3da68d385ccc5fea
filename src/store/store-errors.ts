// Wraps the errors of store calls.
import { wrapError } from '../errors.ts';

/** @throws GatewayError `store_unavailable` with the original error as its cause */
export async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw wrapError(error, 'store_unavailable');
  }
}
