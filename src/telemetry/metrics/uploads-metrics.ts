// Metrics of large requests: forms whose files are kept before they are sent, and memory for large bodies.
import type { MetricCatalogue } from './metric-catalogue.ts';

export function uploadMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Uploads');
  return {
    uploadFiles: catalogue
      .gauge({
        name: 'tollgate_upload_files',
        meaning: 'Uploads that are kept in temporary files, because their model stands behind a large file.',
        labels: {},
        action: 'Saturation, at 32: more are answered with 503 `overloaded`. Add replicas.',
      })
      .cell({}),
    uploadFileBytes: catalogue
      .gauge({
        name: 'tollgate_upload_file_bytes',
        meaning: 'What stands in them.',
        labels: {},
        action: 'Room on the disk of the temporary directory; at most 32 times `max_body`.',
      })
      .cell({}),
    slabBytes: catalogue
      .gauge({
        name: 'tollgate_body_memory_bytes',
        meaning:
          'Memory of large bodies that is kept for the next ones; what nobody takes for ten seconds is let go.',
        labels: {},
        action: 'At most 128 MiB a process, which the memory limit of a container has to allow for.',
      })
      .cell({}),
  };
}
