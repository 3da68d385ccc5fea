// Encrypted content (of reasoning and of compactions): only the target that made it can read it. A digest of it, with the name of that
// target, is recorded as an object of the holder; the content itself is not stored.
import { hash } from 'node:crypto';
import { sealsIn } from '../../wire/created-objects.ts';
import { type Route, type Target, targetName } from '../routes/route-table.ts';
import type { ObjectOwners } from './object-owners.ts';

/** Each request repeats those of the whole conversation, and the newest decides. */
const MAX_LOOKED_UP = 16;

/** The id under which a target that made a content is recorded. */
export function sealId(seal: string, target: Pick<Target, 'upstream' | 'model'>): string {
  return `seal.${hash('sha256', `${seal}\0${targetName(target)}`, 'base64url')}`;
}

/**
 * @returns the route to the target that made the newest known encrypted content of the request; unchanged if it made none, or if that
 *   target has left the route: another one with the same account may still read it
 */
export async function routeToMaker(
  objects: Pick<ObjectOwners, 'recorded'>,
  holderId: string,
  route: Route,
  body: Buffer,
): Promise<Route> {
  const seals = sealsIn(body, MAX_LOOKED_UP);
  if (seals.length === 0) return route;
  const targets = route.targets.filter(({ weight }) => weight > 0);
  const ids = seals.map((seal) => targets.map((target) => sealId(seal, target)));
  const known = await objects.recorded(ids.flat(), holderId);
  for (const each of ids) {
    const makers = targets.filter((_, index) => known.has(each[index] ?? ''));
    if (makers.length > 0) return { ...route, targets: makers };
  }
  return route;
}
