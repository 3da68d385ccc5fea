// Loads the package `stripe` when it is first needed: it is a megabyte of code, and most gateways do without.
import { createRequire } from 'node:module';
import type Stripe from 'stripe';

const load = createRequire(import.meta.url);

/** The class of the package, which Node loads once. */
export function stripePackage(): typeof Stripe {
  return load('stripe');
}
