module tidegauge/socketgo

go 1.21
