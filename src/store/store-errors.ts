// Wraps the errors of store calls, and has the error of opening a store.
import { GatewayError, wrapError } from '../errors.ts';

/** The same store, whose methods reject with GatewayError `store_unavailable`, the original error as its cause. */
export function guarded<Methods extends object>(store: Methods): Methods {
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      return async (...args: readonly unknown[]) => {
        try {
          return await Reflect.apply(member, target, args);
        } catch (error) {
          throw hasNul(error)
            ? new GatewayError('invalid_value', NUL_MESSAGE, { cause: error })
            : wrapError(error, 'store_unavailable');
        }
      };
    },
  });
}

const NUL_MESSAGE = 'A text has a NUL character, which the store cannot have.';

/** Whether PostgreSQL refused a text (`character_not_in_repertoire`): then the store is there, and the text is the reason. */
function hasNul(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, 'code') === '22021';
}

/** The operator's message for an error of a store call; undefined for other errors. */
export function storeFault(error: unknown): string | undefined {
  const isWrapped = error instanceof GatewayError && error.code === 'store_unavailable';
  if (!isWrapped || error.message !== error.rule.message || !(error.cause instanceof Error)) return undefined;
  return `the store cannot be used: ${error.cause.message}`;
}

/** The store cannot be opened. The message is for the operator and contains no credential. */
export class StoreOpenError extends Error {
  override readonly name = 'StoreOpenError';
}
