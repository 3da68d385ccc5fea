// Untrusted text from Redis: any client with access may have written it, so a schema validates it.
import type { ZodType } from 'zod';
import { parse } from '../wire/error-answer.ts';

/** @returns undefined when the text is not JSON or does not match the schema */
export function parseUntrusted<T>(schema: ZodType<T>, text: string): T | undefined {
  return schema.safeParse(parse(text)).data;
}
