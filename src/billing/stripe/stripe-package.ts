// Loads the package `stripe` when it is first needed: it is a megabyte of code, and most gateways do without.
import { createRequire } from 'node:module';

const load = createRequire(import.meta.url);

/** The package. Node loads it once. */
export function stripePackage(): typeof import('stripe') {
  return load('stripe');
}
