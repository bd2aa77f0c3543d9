// Which points of a series a line connects. A point is [time, value]; null is no value.

export const hasNumber = (point) => point !== undefined && point[1] !== null;

/** Remove nulls between values that are less than `most` milliseconds apart, as Grafana's numeric
    spanNulls does: for example, times that only other series have. */
export function bridged(points, most) {
  if (typeof most !== "number") return points;
  const kept = [];
  let nulls = [];
  for (const point of points) {
    if (!hasNumber(point)) {
      nulls.push(point);
      continue;
    }
    const before = kept.at(-1);
    if (!hasNumber(before) || point[0] - before[0] >= most) kept.push(...nulls);
    kept.push(point);
    nulls = [];
  }
  return [...kept, ...nulls];
}

/** Insert gaps where no value arrived for longer than `gap` milliseconds and than three points. */
export function parted(points, gap, interval) {
  if (typeof gap !== "number") return points;
  const longest = Math.max(gap, 3 * interval);
  return points.flatMap((point, i) => {
    const before = points[i - 1];
    const isApart = before && point[0] - before[0] > longest;
    return isApart ? [[(before[0] + point[0]) / 2, null], point] : [point];
  });
}
