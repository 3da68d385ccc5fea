// The one way in which a call of the store fails.
import { wrapError } from '../errors.ts';

/** @throws GatewayError `store_unavailable`, with whatever went wrong as its cause */
export async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw wrapError(error, 'store_unavailable');
  }
}
