// Opens a store as a start does, and holds the trial of `tollgate check` to the same outcome.
import { expect } from 'vitest';
import type { StaticConfig } from '../../src/config/schema/config-schema.ts';
import { openStore, tryStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';

/** @throws as `openStore`, and when `tryStore` does not agree */
export async function openTried(config: StaticConfig['store']): Promise<Store> {
  const trial = isRefused(tryStore(config, {}));
  // Beside each other, where only the network is slow; a file must be tried as it was.
  if (config.kind === 'sqlite') await trial;
  const opening = openStore(config);
  const [isTrialRefused, isOpeningRefused] = await Promise.all([trial, isRefused(opening)]);
  expect(isTrialRefused, 'whether the trial refuses it').toBe(isOpeningRefused);
  return await opening;
}

function isRefused(opening: Promise<unknown>): Promise<boolean> {
  return opening.then(
    () => false,
    () => true,
  );
}
