// A form request: reads its fields while it arrives, and builds the form for one target. http/body/upload.ts buffers and forwards the
// bytes; the endpoint interprets the fields.
import { Upload } from '../../http/body/upload.ts';
import type { SpoolFiles } from '../../http/body/upload-spool.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { mediaType } from '../../http/multipart/media-type.ts';
import { boundaryOf } from '../../http/multipart/part-head.ts';
import type { BodySource } from '../../http/pieces/body-source.ts';
import type { Span } from '../../wire/json/json.ts';
import type { FormRules, FormView, RequestFacts } from '../contracts/endpoint.ts';
import type { FormBody } from '../contracts/receiver.ts';
import { NO_SCAN, type RequestScan } from '../request/request-members.ts';
import { type Edit, spliceSpans } from '../request/request-scan.ts';
import type { Estimate } from '../request/token-estimate.ts';
import type { Route, Target } from '../routes/route-table.ts';
import type { WatchedMembers } from '../routes/watched-members.ts';
import { formEdits } from './form-edits.ts';
import { FormFields } from './form-reader.ts';

const MULTIPART = 'multipart/form-data';
const NO_BYTES: Buffer = Buffer.alloc(0);

interface FormRequestOptions {
  readonly exchange: Exchange;
  readonly rules: FormRules;
  /** Of the whole body, in bytes. */
  readonly limit: number;
  readonly room: SpoolFiles;
  /** Checks the key again before the end of a form that is forwarded while it arrives. */
  readonly confirm: () => unknown;
  /** Fields that the configuration rejects; undefined for none. */
  readonly watched?: WatchedMembers | undefined;
  /** Whether a target of this model changes fields, which only a complete form shows. Default: never. */
  readonly isChanged?: ((model: string) => boolean) | undefined;
}

/** Whether the request is a form and its endpoint takes forms. */
export function isForm({ request }: Exchange, rules: FormRules | undefined): rules is FormRules {
  return rules !== undefined && mediaType(request.headers) === MULTIPART;
}

export class FormRequest implements FormBody {
  readonly #fields: FormFields;
  readonly #upload: Upload;
  readonly #boundary: string;
  readonly contentType: string;
  readonly facts: RequestFacts;

  /**
   * Reads as much as forwarding needs. The caller must close it.
   * @throws GatewayError (rejects) invalid_form, missing_required_parameter, duplicate_parameter, invalid_type, invalid_value, and
   *   the errors of `Upload.keep`
   */
  static async open(options: FormRequestOptions): Promise<FormRequest> {
    const form = new FormRequest(options);
    try {
      await form.#upload.buffer();
      return form;
    } catch (error) {
      await form.close();
      throw error;
    }
  }

  private constructor({ exchange, rules, limit, room, confirm, watched, isChanged }: FormRequestOptions) {
    this.contentType = exchange.request.headers['content-type'] ?? '';
    this.#boundary = boundaryOf(this.contentType);
    this.#fields = new FormFields(rules, this.#boundary, watched, isChanged);
    const upload = new Upload(exchange, limit, this.#fields, room);
    this.#upload = upload;
    this.#fields.confirm = confirm;
    this.#fields.bytesOf = () => upload.size;
    this.facts = liveFacts(rules, this.#fields);
    this.#fields.onEnd = () => {
      exchange.isStream = this.facts.stream;
    };
  }

  get isLive(): boolean {
    return this.#upload.isLive;
  }

  get isSpent(): boolean {
    return this.#upload.isSpent;
  }

  /** The JSON body's facts, as far as they apply to forms. */
  get scan(): RequestScan {
    return { ...NO_SCAN, model: this.#fields.model };
  }

  /**
   * Rejects the route's rejected fields, both received and still to come, and what a target cannot be sent.
   * @throws GatewayError unsupported_parameter, duplicate_parameter, invalid_type
   */
  check({ rejected, targets }: Pick<Route, 'rejected' | 'targets'>): void {
    if (rejected !== undefined) this.#fields.reject(rejected);
    for (const target of targets) this.#changesFor(target);
  }

  bodyFor(target: Target): Buffer | BodySource {
    const edits = this.#editsFor(target);
    const { whole } = this.#upload;
    if (whole === undefined) return this.#upload.source(edits);
    return edits.length === 0 ? whole : spliceSpans(whole, edits);
  }

  close(): Promise<void> {
    return this.#upload.close();
  }

  #changesFor({ edits }: Target): Edit[] {
    const { parts, closedAt } = this.#fields;
    return edits === undefined ? [] : formEdits(edits, parts, this.#boundary, closedAt);
  }

  #editsFor(target: Target): Edit[] {
    const changes = this.#changesFor(target);
    const edits = [...changes, ...this.#modelEdits(target)];
    return changes.length === 0 ? edits : edits.toSorted((a, b) => a.span.start - b.span.start);
  }

  #modelEdits({ model, upstream }: Target): Edit[] {
    const { modelPart, model: named, closedAt } = this.#fields;
    if (upstream.config.send_model === false) {
      if (modelPart === undefined) return [];
      return [{ span: { start: modelPart.start, end: modelPart.end }, bytes: NO_BYTES }];
    }
    if (model === named) return [];
    if (modelPart !== undefined) {
      const span: Span = { start: modelPart.contentStart, end: modelPart.contentEnd };
      return [{ span, bytes: Buffer.from(model) }];
    }
    // The default model applies only once the whole form has arrived without one.
    const part = `--${this.#boundary}\r\ncontent-disposition: form-data; name="model"\r\n\r\n${model}\r\n`;
    return [{ span: { start: closedAt, end: closedAt }, bytes: Buffer.from(part) }];
  }
}

/** The facts of the request, computed on each access from the fields so far. */
function liveFacts({ readFacts: facts }: FormRules, form: FormView): RequestFacts {
  const estimate: Estimate = {
    get prompt() {
      return facts(form).estimate.prompt;
    },
    get completion() {
      return facts(form).estimate.completion;
    },
    isBounded: false,
  };
  return {
    estimate,
    get stream() {
      return facts(form).stream;
    },
    get takesText() {
      return facts(form).takesText;
    },
    get outputs() {
      return facts(form).outputs;
    },
    get quantities() {
      return facts(form).quantities;
    },
  };
}
