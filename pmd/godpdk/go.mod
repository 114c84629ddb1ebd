module github.com/rnicd/rnicd/pmd/godpdk

go 1.26.0

require (
	github.com/rnicd/rnicd v0.0.0
	github.com/stretchr/testify v1.12.1
	github.com/yerden/go-dpdk v0.1.1-0.20240318075443-5cdb7609817f
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/rnicd/rnicd => ../..
