// Argon2id with little memory for the system tests: a hash takes 0.3 ms of a processor in place of 25. A hash names its parameters,
// so it is verified with them everywhere. REAL_ARGON2=1 in the environment keeps those of production; `test/auth/hasher.test.ts`, a unit
// test, has them, too.
import { createRequire } from 'node:module';
import type { HashOptions } from 'argon2';

const argon2: { hash: (text: Buffer | string, options?: HashOptions) => Promise<string> } = createRequire(
  import.meta.url,
)('argon2');
const { hash } = argon2;
// Modules that import `hash` by its name read it from here when they load, which is after this file.
argon2.hash = (text, options) =>
  hash(text, process.env['REAL_ARGON2'] === '1' ? options : { ...options, memoryCost: 64 });
