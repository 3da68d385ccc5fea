// Records for tests of the store, which needs no real keys.
import { randomBytes, randomUUID } from 'node:crypto';
import { type HolderOf, isPrefix, type NewKey, type Prefix } from '../../src/store/key-record.ts';

/** The secret of processes that share a store without a file. */
export const SHARED_SECRET = 'the secret of a test';

export function prefix(text: string): Prefix {
  if (!isPrefix(text)) throw new Error(`${text} is no prefix`);
  return text;
}

export function newKey(text = randomBytes(4).toString('hex')): NewKey {
  return {
    prefix: prefix(text),
    argon2: '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g',
    hmac: randomBytes(32),
    createdAt: new Date().toISOString(),
  };
}

export function newHolder(tier: 'Free' | 'Lite' | 'Pro' = 'Lite', name: string | null = null): HolderOf {
  return { kind: 'new', id: randomUUID(), tier, name };
}
