// The records of batches whose usage is not counted, in the table of objects: who created a batch, with which model; which batch wrote an
// output file; and the queue of the batches of all holders.
import type { Principal } from '../auth/key/principal.ts';
import { TIERS } from '../config/schema/config-schema.ts';
import type { SeenObject } from '../proxy/objects/object-owners.ts';
import { isPrefix } from '../store/key-record.ts';
import type { ListedObject, ObjectOwner, ObjectRecord } from '../store/object-record.ts';
import { parse } from '../wire/error-answer.ts';

/** The batches of all holders and upstreams that are not counted. */
export const UNCOUNTED = { upstream: '', holderId: '', kind: 'uncounted batch' } as const;

/** For whom a batch counts. */
export type Creator = Pick<Principal, 'prefix' | 'tier' | 'teamId' | 'holderId'>;

/** A batch of the queue. */
export interface UncountedBatch extends ObjectOwner {
  readonly batch: string;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
}

/**
 * The records of a new batch.
 * @param model as in `PreparedBatch`
 */
export function batchRecords(
  batch: string,
  model: string,
  upstream: string,
  { holderId, prefix, tier, teamId }: Principal,
): readonly ObjectRecord[] {
  const createdAt = new Date().toISOString();
  const purpose = JSON.stringify([prefix, tier, teamId]);
  return [
    { upstream, id: `${batch}/${model}`, kind: `model of ${batch}`, holderId, purpose, createdAt },
    { ...UNCOUNTED, id: `${upstream}/${batch}`, purpose: holderId, createdAt },
  ];
}

/** The record of an output file whose usage is not counted yet. */
export function uncountedOutput(file: string, batch: string): SeenObject {
  return { id: `${file}/${batch}`, kind: `batch of ${file}` };
}

/** @param record of the queue */
export function uncountedBatch({ id, purpose, createdAt }: ListedObject): UncountedBatch {
  const slash = id.lastIndexOf('/');
  return {
    id,
    upstream: id.slice(0, slash),
    batch: id.slice(slash + 1),
    holderId: purpose ?? '',
    createdAt: Date.parse(createdAt),
  };
}

/** What the record of a model names. @param id of the record */
export function modelInRecord(id: string, batch: string): { readonly path: string; readonly model: string } {
  const [path = '', ...names] = id.slice(batch.length + 1).split(':');
  return { path, model: names.join(':') };
}

/** @param purpose of the record of the model; null: written by an earlier version */
export function creatorIn(purpose: string | null, holderId: string): Creator | undefined {
  const fields = parse(purpose ?? '');
  if (!Array.isArray(fields)) return undefined;
  const [prefix, tierName, team]: readonly unknown[] = fields;
  const tier = TIERS.find((each) => each === tierName);
  if (typeof prefix !== 'string' || !isPrefix(prefix) || tier === undefined) return undefined;
  return { prefix, tier, teamId: typeof team === 'string' ? team : null, holderId };
}
