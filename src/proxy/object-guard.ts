// The objects that a request for a model means, where the upstream that keeps them may be asked: a completion with a file of
// another holder would show it as well as the file itself.
import type { Caller } from '../auth/caller.ts';
import type { DynamicConfig } from '../config/schema.ts';
import type { ObjectStore } from '../store/object-record.ts';
import { ReferenceFinder } from './object-references.ts';
import { HolderObjects } from './objects.ts';
import type { Route } from './route-table.ts';

const NONE: ReadonlySet<string> = new Set();

/**
 * Costs one pass over the body where `passthrough` is configured for an upstream of this route, a look-up where something is
 * named, and nothing elsewhere.
 * @param body valid JSON
 * @returns undefined when there is nothing to wait for; rejects with GatewayError object_not_found or store_unavailable
 */
export function guardObjects(
  store: ObjectStore,
  { passthrough }: Pick<DynamicConfig, 'passthrough'>,
  route: Pick<Route, 'targets'>,
  { holderId }: Pick<Caller, 'holderId'>,
  body: Buffer,
): Promise<void> | undefined {
  const keeper = passthrough?.upstream;
  if (keeper === undefined || route.targets.every(({ upstream }) => upstream.name !== keeper))
    return undefined;
  const finder = new ReferenceFinder({ takesStored: true });
  const check = ({ certain }: ReferenceFinder) =>
    certain.size === 0
      ? undefined
      : new HolderObjects(store, keeper, holderId).check({ certain, possible: NONE });
  const found = finder.addBody(body);
  return found instanceof Promise ? found.then(check) : check(found);
}
