// Text that comes out of Redis, where anybody with access may have put it: read by a schema, or not at all.
import type { ZodType } from 'zod';

/** @returns undefined for what is no JSON, or not of this form */
export function readForeign<T>(schema: ZodType<T>, text: string): T | undefined {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return undefined;
  }
  return schema.safeParse(json).data;
}
