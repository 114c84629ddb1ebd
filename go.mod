module github.com/rnicd/rnicd

go 1.26
