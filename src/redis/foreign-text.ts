// Untrusted text from Redis: any client with access may have written it, so a schema validates it.
import type { ZodType } from 'zod';

/** @returns undefined when the text is not JSON or does not match the schema */
export function parseUntrusted<T>(schema: ZodType<T>, text: string): T | undefined {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return undefined;
  }
  return schema.safeParse(json).data;
}
