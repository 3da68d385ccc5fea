// Records of teams and of the search for holders.
import type { Tier } from '../config/schema/config-schema.ts';
import type { Terms, TermsChange } from '../config/terms.ts';
import type {
  Authorship,
  Holder,
  HolderFilter,
  LabelChange,
  OwnerLabels,
  Prefix,
  SearchPage,
  SearchPosition,
} from './key-record.ts';

export interface Team {
  readonly id: string;
  /** Unique, ignoring the case of ASCII letters. */
  readonly name: string;
  /** Limits that all holders of the team share. */
  readonly terms: Terms;
  /** A number that every change of any team raises, so that readers can ask for what is new. */
  readonly version: number;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

export interface TeamSummary extends Team {
  readonly labels: OwnerLabels;
  readonly holders: number;
}

/** Omitted members stay unchanged. */
export interface TeamChange {
  readonly name?: string;
  readonly terms?: TermsChange;
  readonly labels?: LabelChange;
}

export interface TeamEvent {
  readonly id: number;
  readonly teamId: string;
  /** Such as `name search to ranking`. */
  readonly what: string;
  readonly at: string;
  readonly actor: string | null;
  readonly reason: string | null;
}

export interface HolderSummary extends Holder {
  readonly team: string | null;
  readonly labels: OwnerLabels;
  /** Number of active keys. */
  readonly keys: number;
  /** `YYYY-MM-DD`, UTC: the last day on which one of its keys was used; null before the first use. */
  readonly lastUsed: string | null;
}

export type TeamResult =
  /** `same`: the team already had these values. Nothing was written. */
  | { readonly kind: 'done' | 'same'; readonly team: Team }
  | { readonly kind: 'name_taken' }
  | { readonly kind: 'unknown' };

/** Teams, labels and last uses in the store. The guarantees of `Store` apply to its methods. */
export interface OrganisationStore {
  addTeam(
    team: Pick<Team, 'id' | 'name' | 'terms'>,
    by: Authorship,
    labels: OwnerLabels,
  ): Promise<TeamResult>;
  changeTeam(id: string, change: TeamChange, by: Authorship): Promise<TeamResult>;
  /** Removes a team without holders. Its usage and its events stay. */
  removeTeam(id: string, by: Authorship): Promise<'removed' | 'has_holders' | 'unknown'>;
  findTeam(whose: { readonly id: string } | { readonly name: string }): Promise<Team | undefined>;
  /** Ordered by name. @param filter.limit 1 to 1000 */
  listTeams(filter: {
    /** Beginning of the name, ignoring the case of ASCII letters. */
    readonly name?: string | undefined;
    readonly labels?: OwnerLabels | undefined;
    readonly after?: string | undefined;
    readonly limit: number;
  }): Promise<readonly TeamSummary[]>;
  /** The ids of removed teams that had this name, or have this id. */
  removedTeams(nameOrId: string): Promise<readonly string[]>;
  /** Oldest first. */
  teamHistory(id: string): Promise<readonly TeamEvent[]>;
  /** Teams with a version above `version`, in its order. */
  teamsAfter(version: number, limit: number): Promise<readonly Team[]>;
  /** Ordered by name where that is a condition, else by label, else by id. @param limit 1 to 1000 */
  searchHolders(
    filter: HolderFilter,
    limit: number,
    after?: SearchPosition,
  ): Promise<SearchPage<HolderSummary>>;
  /** Number of active keys whose expiry is in this time, RFC 3339, UTC. */
  countExpiring(from: string, to: string): Promise<number>;
  /** Numbers of holders with an active key, by tier. */
  countHolders(tiers: readonly Tier[]): Promise<ReadonlyMap<string, number>>;
  labelsOf(ownerId: string): Promise<OwnerLabels>;
  /** Names of the labels that holders and teams have, in order. */
  labelNames(): Promise<readonly string[]>;
  /** Records the last day of use of keys. An earlier day than the known one changes nothing. */
  recordUses(uses: ReadonlyMap<Prefix, string>): Promise<void>;
}
