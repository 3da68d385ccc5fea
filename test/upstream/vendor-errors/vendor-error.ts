// One error as a vendor sent it. Ids of organizations, projects and requests are replaced.
import type { FallbackReason } from '../../../src/config/schema/model-schema.ts';

export interface VendorError {
  readonly vendor: string;
  /** Undefined: none of them. */
  readonly reason: FallbackReason | undefined;
  /** 200: the body is a whole answer, or the data of the first event. */
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string;
}
