// Shows when the certificate of the public listener expires, and warns daily from a week before.
import { expiryWarning } from '../../config/check/listener-tls-check.ts';
import type { ServerCertificate } from '../../config/schema/listener-schema.ts';
import { certificatesIn } from '../../config/schema/pem.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';

const DAY_MS = 86_400_000;

export class CertificateExpiry {
  readonly #gauge: Metrics['tls']['expiry'];
  readonly #logger: Pick<Logger, 'warn'>;
  #timer: NodeJS.Timeout | undefined;

  constructor(gauge: Metrics['tls']['expiry'], logger: Pick<Logger, 'warn'>) {
    this.#gauge = gauge;
    this.#logger = logger;
  }

  /** Follows this certificate from now on. The first warning is that of the configuration check. */
  follow({ cert }: ServerCertificate): void {
    this.stop();
    const [leaf] = certificatesIn(cert);
    if (leaf === undefined) return;
    this.#gauge.set(Math.floor(leaf.validToDate.getTime() / 1000));
    this.#timer = setInterval(() => {
      const warning = expiryWarning(leaf, Date.now());
      if (warning !== undefined) this.#logger.warn(`listen.tls ${warning}`);
    }, DAY_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
