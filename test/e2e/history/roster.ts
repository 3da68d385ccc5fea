// The replicas of a fleet by number: which there are at present, and which may be asked.
import type { Fleet, Replica } from '../../helpers/fleet.ts';

export interface Member {
  /** Counted from 0 over all that ever joined; none comes again. */
  readonly number: number;
  readonly replica: Replica;
  readonly url: string;
  readonly pid: number;
}

export class Roster {
  readonly #fleet: Fleet;
  readonly #members: Member[] = [];
  /** Ended by the test. */
  readonly #killed = new Set<Member>();
  readonly #sleeping = new Set<Member>();

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
    for (const replica of fleet.replicas) this.#add(replica);
  }

  /** All that ever joined. */
  get everyone(): readonly Member[] {
    return this.#members;
  }

  get present(): readonly Member[] {
    return this.#members.filter((member) => !this.#killed.has(member));
  }

  /** Those that are not paused, so that not all clients wait for the same one. */
  get awake(): readonly Member[] {
    return this.present.filter((member) => !this.#sleeping.has(member));
  }

  byPid(pid: number): Member | undefined {
    return this.#members.find((member) => member.pid === pid);
  }

  async join(): Promise<Member> {
    return this.#add(await this.#fleet.join());
  }

  /** As `kill -9` does. */
  kill(member: Member): void {
    this.#killed.add(member);
    this.#sleeping.delete(member);
    member.replica.gateway.child.kill('SIGKILL');
  }

  pause(member: Member): void {
    this.#sleeping.add(member);
    member.replica.gateway.child.kill('SIGSTOP');
  }

  resume(member: Member): void {
    this.#sleeping.delete(member);
    member.replica.gateway.child.kill('SIGCONT');
  }

  /** Replicas that are not there any more although nobody ended them. */
  get deserters(): readonly Member[] {
    return this.present.filter(({ replica: { gateway } }) => {
      return gateway.child.exitCode !== null || gateway.child.signalCode !== null;
    });
  }

  #add(replica: Replica): Member {
    const { gateway } = replica;
    const { pid } = gateway.child;
    if (pid === undefined) throw new Error('a gateway that runs has a process id');
    const member = { number: this.#members.length, replica, url: gateway.url, pid };
    this.#members.push(member);
    return member;
  }
}
