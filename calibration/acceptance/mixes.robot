# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Bandwidths of different mixes of reads and writes must be able to be those of one machine. What it
...                 moves in a second it can also move with fewer reads, or with fewer writes. So a mix with a larger
...                 share of writes reads no more lines than one with a smaller share, and writes no fewer. Which of
...                 the two has the larger sum depends on whether memory or the way to it is the limit, and is not asked.
Resource            gates.resource
Test Tags           mixes


*** Test Cases ***
Bandwidths Of Mixes Are In Order
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And the best bandwidth of each mix of reads and writes
    When mixes with fewer writes are held against those with more
    Then everything is as it should be
