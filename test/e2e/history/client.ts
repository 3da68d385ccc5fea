// One client: asks one thing after another, over connections that it keeps, and writes down what it heard. It believes nothing:
// whether an answer was right is for the checker.
import { TIERS } from '../../../src/config/schema/config-schema.ts';
import { RawClient, type RawResponse } from '../../helpers/raw-client.ts';
import { pause } from '../../helpers/wait.ts';
import { bearer, textField } from '../holder.ts';
import type { Chance } from './chance.ts';
import type { Desk } from './desk.ts';
import type { Journal } from './journal.ts';
import type { Held, Keyring } from './keyring.ts';
import type { Answer } from './operation.ts';
import type { Member, Roster } from './roster.ts';

/** An answer takes no longer, whatever is away; a replica that is paused sleeps for less. */
const PATIENCE_MS = 15_000;
/** Requests over one connection. */
const PER_CONNECTION = 100;
const MIN_LIVING = 8;
const MAX_LIVING = 14;

export interface ClientParts {
  readonly number: number;
  readonly roster: Roster;
  readonly keyring: Keyring;
  readonly desk: Desk;
  readonly journal: Journal;
  readonly chance: Chance;
}

interface Heard {
  readonly invokedAt: number;
  readonly completedAt: number;
  readonly answer: Answer;
  readonly response: RawResponse | undefined;
}

export class Client {
  readonly #parts: ClientParts;
  readonly #connections = new Map<number, { readonly connection: RawClient; used: number }>();

  constructor(parts: ClientParts) {
    this.#parts = parts;
  }

  /** Asks until `isOver`. */
  async run(isOver: () => boolean): Promise<void> {
    const { chance } = this.#parts;
    const { journal } = this.#parts;
    let nextChange = journal.now() + chance.between(0, 600);
    while (!isOver()) {
      if (journal.now() >= nextChange) {
        await this.#change();
        nextChange = journal.now() + chance.between(200, 900);
      } else {
        const member = chance.one(this.#parts.roster.awake);
        if (member !== undefined) await this.call(member, this.#parts.keyring.toCall(chance));
        await pause(chance.between(0, 12));
      }
    }
    for (const { connection } of this.#connections.values()) connection.destroy();
    this.#connections.clear();
  }

  /** @returns the new key, if there is one */
  async issue(): Promise<Held | undefined> {
    const { chance, desk, journal, keyring, number } = this.#parts;
    const invokedAt = journal.now();
    const key = chance.is(0.03) ? await desk.issueByCommand() : await desk.issue();
    const completedAt = journal.now();
    const name = key === undefined ? undefined : keyring.add(key);
    journal.record({ kind: 'issue', client: number, invokedAt, completedAt, key: name });
    return key === undefined || name === undefined ? undefined : { name, key };
  }

  async call(member: Member, held: Held): Promise<Answer> {
    const heard = await this.#ask(member, 'GET', '/v1/models', held.key);
    this.#parts.journal.record({
      kind: 'call',
      client: this.#parts.number,
      key: held.name,
      replica: member.number,
      ...timesOf(heard),
      answer: heard.answer,
    });
    return heard.answer;
  }

  /** One change of a key, and a look at what the replicas make of it. */
  async #change(): Promise<void> {
    const { chance, keyring, roster } = this.#parts;
    const { living } = keyring;
    if (living < MIN_LIVING || (living < MAX_LIVING && chance.is(0.35))) {
      await this.issue();
      return;
    }
    if (chance.is(0.2)) return await this.#changeTier();
    if (chance.is(0.35)) return await this.#race();
    const held = keyring.toEnd(chance);
    if (held === undefined) return;
    keyring.doubt(held);
    const members = roster.awake;
    if (chance.is(0.35)) await this.#revoke(held);
    else if (chance.is(0.3)) {
      // As two programs would that share a key.
      await Promise.all(members.slice(0, chance.integer(2, 3)).map((each) => this.#rotate(each, held)));
    } else {
      const member = chance.one(members);
      if (member !== undefined) await this.#rotate(member, held);
    }
    for (const member of roster.awake) await this.call(member, held);
  }

  /** A key stays as good as it is while its holder comes to other tiers; rotation may come between. */
  async #changeTier(): Promise<void> {
    const { chance, desk, keyring, roster } = this.#parts;
    const held = keyring.toCall(chance);
    const meet = roster.awake.map(async (member) => {
      await pause(chance.between(0, 20));
      await this.call(member, held);
    });
    const tier = chance.one(TIERS) ?? 'Pro';
    await Promise.all([...meet, desk.changeTier(held.name, tier, chance.is(0.5))]);
    for (const member of roster.awake) await this.call(member, held);
  }

  /** A key ends while replicas meet it for the first time: what they read of it must not come after its end. */
  async #race(): Promise<void> {
    const { chance, desk, keyring, roster } = this.#parts;
    const held = await this.issue();
    if (held === undefined) return;
    await desk.forget(held.name);
    keyring.doubt(held);
    const members = roster.awake;
    const [first] = members;
    const meet = members.map(async (member) => {
      await pause(chance.between(0, 60));
      await this.call(member, held);
    });
    const end = async () => {
      await pause(chance.between(0, 90));
      if (first === undefined || chance.is(0.7)) await this.#revoke(held);
      else await this.#rotate(first, held);
    };
    await Promise.all([...meet, end()]);
    for (const member of roster.awake) await this.call(member, held);
  }

  async #rotate(member: Member, held: Held): Promise<void> {
    const { journal, keyring, number } = this.#parts;
    const heard = await this.#ask(member, 'POST', '/admin/keys/rotate', held.key);
    const { answer, response } = heard;
    let successor: string | undefined;
    if (answer === 'accepted') successor = keyring.add(textField(response?.json(), 'key'));
    if (answer === 'accepted' || answer === 'refused') keyring.end(held);
    const base = { kind: 'rotate', client: number, key: held.name, replica: member.number } as const;
    journal.record({ ...base, ...timesOf(heard), answer, successor });
  }

  async #revoke(held: Held): Promise<void> {
    const { chance, desk, journal, keyring, number } = this.#parts;
    const invokedAt = journal.now();
    const revocation = chance.is(0.04) ? await desk.revokeByCommand(held.name) : await desk.revoke(held.name);
    const completedAt = journal.now();
    if (revocation.outcome !== 'unknown') keyring.end(held);
    journal.record({ kind: 'revoke', client: number, key: held.name, invokedAt, completedAt, ...revocation });
  }

  async #ask(member: Member, method: string, target: string, key: string): Promise<Heard> {
    const { journal } = this.#parts;
    const invokedAt = journal.now();
    let response: RawResponse | undefined;
    try {
      // A rotation has one of its own, because it may run beside a call.
      using own = method === 'POST' ? await RawClient.connect(member.url, { keep: false }) : undefined;
      const connection = own ?? (await this.#connectionTo(member));
      response = await connection.ask(
        { method, target, headers: bearer(key), host: new URL(member.url).host },
        PATIENCE_MS,
      );
    } catch {
      // Ended without an answer.
    }
    const answer = response?.complete === true ? answerOf(response.status) : 'broken';
    if (answer === 'broken') this.#forget(member);
    return { invokedAt, completedAt: journal.now(), answer, response };
  }

  async #connectionTo(member: Member): Promise<RawClient> {
    const kept = this.#connections.get(member.number);
    if (kept !== undefined && kept.used < PER_CONNECTION) {
      kept.used += 1;
      return kept.connection;
    }
    this.#forget(member);
    const connection = await RawClient.connect(member.url, { keep: false });
    this.#connections.set(member.number, { connection, used: 1 });
    return connection;
  }

  #forget(member: Member): void {
    this.#connections.get(member.number)?.connection.destroy();
    this.#connections.delete(member.number);
  }
}

function timesOf({ invokedAt, completedAt }: Heard): Pick<Heard, 'invokedAt' | 'completedAt'> {
  return { invokedAt, completedAt };
}

function answerOf(status: number): Answer {
  if (status === 200) return 'accepted';
  if (status === 401) return 'refused';
  return status === 503 ? 'unavailable' : 'other';
}
