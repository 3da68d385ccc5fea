// The scopes of a request: whose limits it uses up. Those of its holder, and beside them those of its key, its team and of the holder
// with this model, where they have some. limits/ counts in them.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { limitsWith } from '../../config/terms.ts';
import { makeScope, makeScopes, type Scope, type Scopes } from '../../limits/scope.ts';
import { modelScope } from '../../store/usage-record.ts';
import type { LimitedOwner } from './limit-report.ts';
import type { KnownTeam, TeamDirectory } from './team-directory.ts';

/** What the scopes of a principal were made of. */
interface KnownScopes {
  readonly config: DynamicConfig;
  readonly team: KnownTeam | undefined;
  /** Without those of a model. */
  readonly scopes: Scopes;
  /** With them, by entry of `models`: only entries that have some. Undefined before the first, because most keys have none. */
  byEntry: Map<string, Scopes> | undefined;
}

export class ScopeResolver {
  readonly #teams: Pick<TeamDirectory, 'find'>;
  /** By the objects of authentication, which stay the same while a key is cached. */
  readonly #known = new WeakMap<LimitedOwner, KnownScopes>();

  constructor(teams: Pick<TeamDirectory, 'find'>) {
    this.#teams = teams;
  }

  /**
   * The same object for the same principal and model, until the configuration or the team changes.
   * @param entry the entry of `models` that the request uses; undefined before the model is known
   * @returns a promise only for the first request of a team that is not known yet
   */
  of(principal: LimitedOwner, config: DynamicConfig, entry?: string): Scopes | Promise<Scopes> {
    if (principal.teamId === null) return this.#of(principal, config, undefined, entry);
    const team = this.#teams.find(principal.teamId);
    return team instanceof Promise
      ? team.then((found) => this.#of(principal, config, found, entry))
      : this.#of(principal, config, team, entry);
  }

  /** As `of`, with the scopes of all models that have some: for reports. */
  async all(principal: LimitedOwner, config: DynamicConfig): Promise<Scopes> {
    const { slot, list } = await this.of(principal, config);
    const ofModels: Scope[] = [];
    for (const entry of Object.keys(config.models)) {
      const scopes = await this.of(principal, config, entry);
      ofModels.push(...scopes.list.filter(({ kind }) => kind === 'model'));
    }
    const [holder, ...others] = list;
    return makeScopes(slot, [holder, ...others, ...ofModels]);
  }

  #of(
    principal: LimitedOwner,
    config: DynamicConfig,
    team: KnownTeam | undefined,
    entry: string | undefined,
  ): Scopes {
    let known = this.#known.get(principal);
    if (known === undefined || known.config !== config || known.team !== team) {
      known = { config, team, scopes: scopesOf(principal, config, team), byEntry: undefined };
      this.#known.set(principal, known);
    }
    if (entry === undefined) return known.scopes;
    const cached = known.byEntry?.get(entry);
    if (cached !== undefined) return cached;
    const { tier, holderId, holderTerms } = principal;
    const ofTier = config.models[entry]?.limits?.[tier];
    const { model_limits = {} } = holderTerms;
    const own = Object.hasOwn(model_limits, entry) ? model_limits[entry] : undefined;
    if (ofTier === undefined && own === undefined) return known.scopes;
    const scope = makeScope(modelScope(holderId, entry, Object.keys(config.models)), limitsWith(ofTier, own));
    if (!isLimited(scope)) return known.scopes;
    const [holder, ...others] = known.scopes.list;
    const scopes = makeScopes(known.scopes.slot, [holder, ...others, scope]);
    known.byEntry ??= new Map();
    known.byEntry.set(entry, scopes);
    return scopes;
  }
}

function scopesOf(
  { tier, holderId, holderTerms, teamId, lineage, terms }: LimitedOwner,
  { tiers }: DynamicConfig,
  team: KnownTeam | undefined,
): Scopes {
  const holder = makeScope({ kind: 'holder', id: holderId }, limitsWith(tiers[tier], holderTerms));
  const others = [
    makeScope({ kind: 'key', lineage }, limitsWith(undefined, terms)),
    ...(team === undefined
      ? []
      : [makeScope({ kind: 'team', id: team.id }, limitsWith(undefined, team.terms))]),
  ];
  // The slot is that of the team even while it has no limits, so that the holder's counters stay where they are.
  return makeScopes(teamId ?? holderId, [holder, ...others.filter(isLimited)]);
}

function isLimited({ active }: Scope): boolean {
  return active.list.length > 0;
}
