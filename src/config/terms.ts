// What a holder, a team or a key may do beyond or below its tier, as the store keeps it and as commands set it.
import { z } from 'zod';
import { eachLimit } from './limit-table.ts';
import { ENDPOINTS } from './schema/endpoint-names.ts';

/** Every member is optional: an absent one leaves what the tier says. */
const TermsSchema = z.strictObject({
  /** Each replaces the limit of the tier; null removes it. */
  limits: z
    .strictObject(eachLimit(() => z.int().min(1).nullable().optional()))
    .partial()
    .optional(),
  /** Public names and patterns of models: a subset of those of the tier. */
  models: z.array(z.string()).min(1).readonly().optional(),
  /** A subset of those of the tier. */
  endpoints: z.array(z.enum(ENDPOINTS)).min(1).readonly().optional(),
});

export type Terms = z.infer<typeof TermsSchema>;

export const NO_TERMS: Terms = {};

/**
 * @param text JSON, as `writeTerms` made it
 * @throws Error when it is not: then a newer version wrote it, and ignoring a part could allow too much
 */
export function readTerms(text: string): Terms {
  return text === '{}' ? NO_TERMS : TermsSchema.parse(JSON.parse(text));
}

export function writeTerms(terms: Terms): string {
  return JSON.stringify(terms);
}
