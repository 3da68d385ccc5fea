// The teams of this process, with the limits that their holders share: all of them are loaded at the start, and changes are polled.
// Requests do not wait for it, except for the first of a team that is not known yet.
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { RecentMap } from '../../recent-map.ts';
import { Repeat } from '../../repeat.ts';
import { singleFlight } from '../../single-flight.ts';
import type { OrganisationStore, Team } from '../../store/organisation-record.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';

/** A change holds everywhere within this time, its jitter, and the time of a read. */
const INTERVAL_MS = 2000;
const JITTER = 0.25;
const PAGE = 500;
/** How long a request waits for a team that is not known. */
const READ_MS = 500;
/** A team that could not be read, or does not exist, is not read again for this time. */
const BACKOFF_MS = 5000;
const MAX_MISSING = 10_000;

export type KnownTeam = Pick<Team, 'id' | 'terms' | 'version'>;

interface TeamDirectoryOptions {
  readonly store: Pick<OrganisationStore, 'teamsAfter' | 'findTeam'>;
  readonly metrics: Pick<Metrics, 'teamsAge' | 'teamReadFailures'>;
  /** Teams that are remembered. Default 100,000. */
  readonly maxTeams?: number;
  /** Between two polls, on average. */
  readonly intervalMs?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  readonly random?: () => number;
}

export class TeamDirectory {
  readonly #options: Required<TeamDirectoryOptions>;
  readonly #teams: RecentMap<string, KnownTeam>;
  /** Teams that were not found → when they are read again. */
  readonly #missing = new RecentMap<string, number>(MAX_MISSING);
  readonly #find = singleFlight((id: string) => this.#read(id));
  #last = 0;
  #polledAt: number;
  readonly #polls = new Repeat(() => this.#pollAgain());

  constructor(options: TeamDirectoryOptions) {
    this.#options = {
      maxTeams: 100_000,
      intervalMs: INTERVAL_MS,
      now: () => performance.now(),
      random: Math.random,
      ...options,
    };
    this.#teams = new RecentMap(this.#options.maxTeams);
    this.#polledAt = this.#options.now();
  }

  /** Loads all teams and starts to poll. @throws GatewayError store_unavailable */
  async start(): Promise<void> {
    await this.#poll();
    this.#polls.start(this.#pause());
  }

  /** Resolves when the running poll has ended. */
  stop(): Promise<void> {
    return this.#polls.stop();
  }

  /**
   * The team as last read. Each change of a team makes a new object.
   * @returns undefined for a team that does not exist, or that the store cannot say in time: then it has no limits for now
   */
  find(id: string): KnownTeam | undefined | Promise<KnownTeam | undefined> {
    const known = this.#teams.get(id);
    if (known !== undefined) return known;
    const until = this.#missing.get(id);
    return until !== undefined && this.#options.now() < until ? undefined : this.#find(id);
  }

  async #read(id: string): Promise<KnownTeam | undefined> {
    const { store, metrics, now } = this.#options;
    try {
      const late = () => new GatewayError('store_unavailable');
      const team = await withDeadline(store.findTeam({ id }), READ_MS, late);
      if (team !== undefined) return this.#learn(team);
    } catch {
      metrics.teamReadFailures.inc();
    }
    this.#missing.set(id, now() + BACKOFF_MS);
    return undefined;
  }

  /** A poll may have been faster than a read. */
  #learn({ id, terms, version }: KnownTeam): KnownTeam {
    const known = this.#teams.get(id);
    const team = known !== undefined && known.version >= version ? known : { id, terms, version };
    this.#teams.set(id, team);
    this.#missing.delete(id);
    return team;
  }

  #pause(): number {
    const { intervalMs, random } = this.#options;
    return intervalMs * (1 + JITTER * (2 * random() - 1));
  }

  async #pollAgain(): Promise<number> {
    const { metrics, now } = this.#options;
    await this.#poll().catch(() => metrics.teamReadFailures.inc());
    metrics.teamsAge.set((now() - this.#polledAt) / 1000);
    return this.#pause();
  }

  async #poll(): Promise<void> {
    const { store, now } = this.#options;
    for (;;) {
      const at = now();
      const teams = await store.teamsAfter(this.#last, PAGE);
      for (const team of teams) {
        this.#learn(team);
        this.#last = team.version;
      }
      if (teams.length === PAGE) continue;
      this.#polledAt = at;
      return;
    }
  }
}
