// Argon2id with little memory for the system tests: a hash takes 0.3 ms of a processor in place of 25. A hash names its parameters,
// so it is verified with them everywhere; `test/auth/hasher.test.ts`, a unit test, has those of production. While HELD_ARGON2=1 is in the
// environment, no hash ends.
import { createRequire } from 'node:module';
import { setTimeout } from 'node:timers/promises';
import type { HashOptions } from 'argon2';

const argon2: { hash: (text: Buffer | string, options?: HashOptions) => Promise<string> } = createRequire(
  import.meta.url,
)('argon2');
const { hash } = argon2;
// Modules that import `hash` by its name read it from here when they load, which is after this file.
argon2.hash = async (text, options) => {
  while (process.env['HELD_ARGON2'] === '1') await setTimeout(5);
  return await hash(text, { ...options, memoryCost: 64 });
};
