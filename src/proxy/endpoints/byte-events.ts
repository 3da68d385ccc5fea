// Conversion of a byte answer (sound, plain text) into the requested event stream, event by event as bytes arrive.
import { StringDecoder } from 'node:string_decoder';
import { GatewayError } from '../../errors.ts';
import type { ByteEvents } from '../contracts/endpoint.ts';

const NO_BYTES: Buffer = Buffer.alloc(0);
/** Three bytes are four letters of base64, so that the texts of all events concatenate to valid base64. */
const GROUP = 3;
/** A day of speech is about a megabyte. */
const MAX_TEXT = 16 * 1024 * 1024;

export class SpeechEvents implements ByteEvents {
  #rest = NO_BYTES;

  next(piece: Buffer): Buffer {
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]);
    const whole = bytes.length - (bytes.length % GROUP);
    // A copy: the sender reuses the piece.
    this.#rest = Buffer.from(bytes.subarray(whole));
    return whole === 0 ? NO_BYTES : delta(bytes.subarray(0, whole));
  }

  end(): Buffer {
    const last = this.#rest.length === 0 ? NO_BYTES : delta(this.#rest);
    return Buffer.concat([last, event({ type: 'speech.audio.done' })]);
  }
}

export class TranscriptEvents implements ByteEvents {
  readonly #decoder = new StringDecoder('utf8');
  #text = '';

  next(piece: Buffer): Buffer {
    return this.#delta(this.#decoder.write(piece));
  }

  end(): Buffer {
    const last = this.#delta(this.#decoder.end());
    return Buffer.concat([last, dataEvent({ type: 'transcript.text.done', text: this.#text })]);
  }

  #delta(text: string): Buffer {
    if (text === '') return NO_BYTES;
    this.#text += text;
    if (this.#text.length > MAX_TEXT)
      throw new GatewayError('upstream_invalid_response', undefined, {
        cause: 'the transcript is too long',
      });
    return dataEvent({ type: 'transcript.text.delta', delta: text });
  }
}

function delta(sound: Buffer): Buffer {
  return event({ type: 'speech.audio.delta', audio: sound.toString('base64') });
}

interface EventData {
  readonly type: string;
  readonly [name: string]: string;
}

function event(data: EventData): Buffer {
  return Buffer.concat([Buffer.from(`event: ${data.type}\n`), dataEvent(data)]);
}

/** The API names transcript events only in their data. */
function dataEvent(data: EventData): Buffer {
  return Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
}
