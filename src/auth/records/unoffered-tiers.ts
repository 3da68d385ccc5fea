// Warns of holders whose tier the configuration does not list: nothing of a tier limits them any longer.
import { type DynamicConfig, TIERS, type Tier } from '../../config/schema/config-schema.ts';
import type { OrganisationStore } from '../../store/organisation-record.ts';
import type { Logger } from '../../telemetry/log/logger.ts';

export function unofferedTiers(tiers: DynamicConfig['tiers']): readonly Tier[] {
  return TIERS.filter((tier) => tiers[tier] === undefined);
}

/** @param holders with an active key, by tier @returns a message for each of these tiers that has some */
export function unofferedWarnings(
  tiers: DynamicConfig['tiers'],
  holders: ReadonlyMap<string, number>,
): readonly string[] {
  return unofferedTiers(tiers).flatMap((tier) => {
    const count = holders.get(tier) ?? 0;
    if (count === 0) return [];
    const whose = count === 1 ? '1 holder with active keys has' : `${count} holders with active keys have`;
    return [
      `${whose} the tier ${tier}, which \`tiers\` does not list: no tier limits them; add \`${tier}\` to \`tiers\`, \`{}\` for one without limits, or give them ` +
        'another tier with `tollgate holders tier`',
    ];
  });
}

/** @returns call it with the tiers of each configuration that is applied; it never rejects */
export function tierWatch(
  store: Pick<OrganisationStore, 'countHolders'>,
  logger: Pick<Logger, 'warn'>,
): (tiers: DynamicConfig['tiers']) => Promise<void> {
  let checked = '';
  return async (tiers) => {
    const missing = unofferedTiers(tiers);
    // Files that the configuration refers to are applied often.
    if (missing.join() === checked) return;
    checked = missing.join();
    if (missing.length === 0) return;
    try {
      const holders = await store.countHolders(missing);
      for (const text of unofferedWarnings(tiers, holders)) logger.warn(text);
    } catch (error) {
      logger.warn({ err: error }, 'failed to count the holders of tiers that `tiers` does not list');
    }
  };
}
