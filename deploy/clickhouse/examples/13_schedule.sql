-- Did the generator keep to its schedule?
SELECT
    run_id, phase, intended, sent, acknowledged, failed,
    send_delay_p50_ms, send_delay_p99_ms, send_delay_max_ms
FROM tidegauge.generator_summary
WHERE run_id IN (SELECT run_id FROM tidegauge.runs ORDER BY requested_at DESC LIMIT 10)
ORDER BY run_id DESC, phase
