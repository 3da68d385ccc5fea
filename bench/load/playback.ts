// Plays streams at their pace to whatever takes bytes. It opens no socket and knows no framing of HTTP.
import { type Pace, streamFrames, timedFrame, UPSTREAM_MODEL, usageFrame } from './traffic.ts';

/** Frames that are there at once, so that the time to the first word is the time on the way: a role and a word. */
const FIRST = 2;
/** A turn that is later than this many milliseconds is not made up for: nothing would be left to measure. */
const MAX_LATE = 1_000;
/** Stands for a frame that is made when it is written. */
const TIMED = 'timed';

type Piece = Buffer | typeof TIMED;

/** Where a stream goes. */
export interface StreamSink {
  readonly isGone: boolean;
  write(frame: Buffer): void;
  /** After the last frame of a stream that ends. */
  end(): void;
}

/** A stream under way: what is still to be written. */
interface Playing {
  readonly sink: StreamSink;
  readonly pieces: readonly Piece[];
  next: number;
}

/**
 * Streams of one pace. They are spread over the milliseconds of a period: real ones do not all speak at once, and a proxy
 * that finds many sockets ready in one turn of its loop has less to do for each.
 */
class Wheel {
  readonly #slots: Set<Playing>[];
  #begun = 0;
  #turn = 0;

  constructor(every: number) {
    this.#slots = Array.from({ length: every }, () => new Set());
  }

  add(playing: Playing): void {
    // A step that shares no factor with common periods, so that streams that begin together do not speak together.
    this.#slots[(this.#begun++ * 7) % this.#slots.length]?.add(playing);
  }

  turn(bytesOf: (piece: Piece) => Buffer): void {
    const slot = this.#slots[this.#turn++ % this.#slots.length];
    for (const playing of slot ?? []) {
      const piece = playing.pieces[playing.next++];
      if (piece !== undefined && !playing.sink.isGone) playing.sink.write(bytesOf(piece));
      if (playing.next < playing.pieces.length && !playing.sink.isGone) continue;
      slot?.delete(playing);
      if (!playing.sink.isGone) playing.sink.end();
    }
  }
}

export class Player {
  readonly #encode: (frame: Buffer) => Buffer;
  /** Made once for each kind of stream. */
  readonly #prepared = new Map<string, readonly Piece[]>();
  readonly #wheels = new Map<number, Wheel>();
  #turned: number | undefined;

  /** @param encode the framing of a frame on its way */
  constructor(encode: (frame: Buffer) => Buffer) {
    this.#encode = encode;
  }

  /** @param withUsage adds the frame with usage that clients have to ask for */
  play(sink: StreamSink, pace: Pace, withUsage: boolean): void {
    const pieces = this.#piecesOf(pace, withUsage);
    const atOnce = pace.every === 0 ? pieces.length : FIRST;
    for (const piece of pieces.slice(0, atOnce)) sink.write(this.#bytesOf(piece));
    if (atOnce < pieces.length) this.#wheelOf(pace.every).add({ sink, pieces, next: atOnce });
    else if (pace.kind !== 'hold') sink.end();
  }

  readonly #bytesOf = (piece: Piece): Buffer =>
    piece === TIMED ? this.#encode(timedFrame(UPSTREAM_MODEL)) : piece;

  #piecesOf({ frames: count, kind }: Pace, withUsage: boolean): readonly Piece[] {
    const name = `${count} ${kind} ${withUsage}`;
    const known = this.#prepared.get(name);
    if (known !== undefined) return known;
    const frames = streamFrames(UPSTREAM_MODEL, count).map(this.#encode);
    const [first, ...words] = frames.slice(0, -2);
    const pieces: Piece[] = first === undefined ? [] : [first];
    if (kind === 'hold') pieces.push(...words.slice(0, 1));
    else {
      const usage = withUsage ? [this.#encode(usageFrame(UPSTREAM_MODEL, count))] : [];
      const [finish, ...done] = frames.slice(-2);
      pieces.push(...(kind === 'timed' ? words.map((): Piece => TIMED) : words));
      pieces.push(...(finish === undefined ? [] : [finish]), ...usage, ...done);
    }
    this.#prepared.set(name, pieces);
    return pieces;
  }

  #wheelOf(every: number): Wheel {
    const wheel = this.#wheels.get(every) ?? new Wheel(every);
    this.#wheels.set(every, wheel);
    if (this.#turned === undefined) {
      this.#turned = performance.now();
      setInterval(() => this.#turn(), 1);
    }
    return wheel;
  }

  /** Turns that a busy processor has made late are made up for, as a vendor keeps its pace however slow a proxy is. */
  #turn(): void {
    const now = performance.now();
    this.#turned = Math.max(this.#turned ?? now, now - MAX_LATE);
    for (; this.#turned <= now; this.#turned += 1)
      for (const wheel of this.#wheels.values()) wheel.turn(this.#bytesOf);
  }
}
