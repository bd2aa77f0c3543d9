-- Which records could not be read, in which topics, and why?
SELECT topic, reason, count() AS records, min(d.time) AS first, max(d.time) AS last
FROM tidegauge.dead_letter AS d
GROUP BY topic, reason
ORDER BY records DESC
LIMIT 20
