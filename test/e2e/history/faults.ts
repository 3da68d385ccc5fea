// What can be broken in a fleet, each fault with how it begins and how it is made whole. Which and when is the nemesis' matter.
import type { Fleet } from '../../helpers/fleet.ts';
import type { Chance } from './chance.ts';
import type { Journal } from './journal.ts';
import type { Member, Roster } from './roster.ts';

/** For so long a replica counts as one that has just started: it has not proved any key, nor been proved itself. */
const NEW_MS = 3000;

export interface Fault {
  /** Two faults of one place do not happen at the same time. */
  readonly place: string;
  readonly name: string;
  /** Breaks it. @returns what makes it whole */
  begin(): Promise<() => Promise<void>>;
}

export const KINDS = [
  'redis paused',
  'redis killed',
  'redis read-only',
  'redis flushed',
  'cable cut',
  'cable swallows',
  'cable slow',
  'store paused',
  'store crashed',
  'replica paused',
  'replica killed',
] as const;

export type FaultKind = (typeof KINDS)[number];

export interface Site {
  readonly fleet: Fleet;
  readonly roster: Roster;
  readonly journal: Journal;
  readonly chance: Chance;
}

/** A fault of this kind, somewhere. Undefined when there is nothing that it could befall. */
export function faultOf(kind: FaultKind, site: Site): Fault | undefined {
  const { fleet, roster, journal, chance } = site;
  const { redis, postgres } = fleet;
  const [subject, how = ''] = kind.split(' ');
  const away = (of: 'redis' | 'store') => journal.disturb({ subject: of, how, replica: undefined });
  const forgotten = () => journal.disturb({ subject: 'memory', how, replica: undefined });
  const member = chance.one(roster.present);
  if ((subject === 'cable' || subject === 'replica') && member === undefined) return undefined;
  const number = member?.number;
  const cableFault = (act: (each: Member) => unknown): Fault['begin'] => {
    return async () => {
      if (member === undefined) return async () => {};
      const heal = journal.disturb({ subject: 'cable', how, replica: number });
      await act(member);
      return async () => {
        member.replica.cable.pass();
        heal();
      };
    };
  };
  const begin: Record<FaultKind, Fault['begin']> = {
    'redis paused': async () => {
      const heal = away('redis');
      redis.pause();
      return async () => {
        redis.resume();
        heal();
      };
    },
    'redis killed': async () => {
      const heal = away('redis');
      const forget = forgotten();
      await redis.kill();
      return async () => {
        await redis.start();
        forget();
        heal();
      };
    },
    'redis read-only': async () => {
      const heal = away('redis');
      await redis.replicaOf();
      return async () => {
        await redis.promote();
        heal();
      };
    },
    'redis flushed': async () => {
      const forget = forgotten();
      await redis.flush();
      forget();
      return async () => {};
    },
    'cable cut': cableFault((each) => each.replica.cable.cut()),
    'cable swallows': cableFault((each) => each.replica.cable.blackHole()),
    'cable slow': cableFault((each) => each.replica.cable.delay(chance.integer(10, 70))),
    'store paused': async () => {
      const heal = away('store');
      postgres.pause();
      return async () => {
        postgres.resume();
        heal();
      };
    },
    'store crashed': async () => {
      const heal = away('store');
      await postgres.stop();
      return async () => {
        await postgres.start();
        heal();
      };
    },
    'replica paused': async () => {
      if (member === undefined) return async () => {};
      const heal = journal.disturb({ subject: 'replica', how, replica: number });
      roster.pause(member);
      return async () => {
        roster.resume(member);
        heal();
      };
    },
    'replica killed': async () => {
      if (member === undefined) return async () => {};
      journal.disturb({ subject: 'replica', how, replica: number });
      roster.kill(member);
      return async () => {
        const { number: successor } = await roster.join();
        const settle = journal.disturb({ subject: 'joining', how: 'new', replica: successor });
        setTimeout(settle, NEW_MS).unref();
      };
    },
  };
  const place =
    number !== undefined && (subject === 'cable' || subject === 'replica')
      ? `replica ${number}`
      : `${subject}`;
  return { place, name: `${kind}${place.startsWith('replica') ? ` (${number})` : ''}`, begin: begin[kind] };
}
